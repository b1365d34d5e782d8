package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/cmd/nsqctl/internal/cli"
)

// TestAReaderBeyondTheEnd: peek and export do not answer a place that no partition has with nothing at all. A place
// beyond the end of some partitions is one: nothing is skipped.
func TestAReaderBeyondTheEnd(t *testing.T) {
	ends := []uint64{7, 20}
	mux := http.NewServeMux()
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	mux.HandleFunc("/v1/cluster", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, `{"brokers":[{"name":"n1","alive":true,"http_address":%q}],"topics":[{"topic":"orders","partitions":[{"partition":0,"leader":"n1"},{"partition":1,"leader":"n1"}]}]}`, s.Listener.Addr())
	})
	mux.HandleFunc("/v1/topic/positions", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `{"positions":[]}`) })
	mux.HandleFunc("/v1/topic/channels", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `{"channels":[]}`) })
	mux.HandleFunc("/v1/topic/peek", func(w http.ResponseWriter, r *http.Request) {
		n, _ := strconv.Atoi(r.URL.Query().Get("partition"))
		next, _ := strconv.ParseUint(r.URL.Query().Get("from"), 10, 64)
		text := `{"next":%d,"end":%d,"messages":[]}`
		if r.URL.Query().Get("limit") != "0" && next < ends[n] {
			next++
			text = `{"next":%d,"end":%d,"messages":[{"id":"a","sequence":` + fmt.Sprint(next-1) + `,"body":"one"}]}`
		}
		fmt.Fprintf(w, text, next, ends[n])
	})
	for _, command := range []string{"peek", "export"} {
		for from, text := range map[string]string{"1764300000": "2025-11-28T03:20:00Z", "21": "the end is latest", "20": "", "8": "", "7": ""} {
			_, err := run(t, time.Minute, command, "orders", "--from", from, "--nsqd-http-address", s.Listener.Addr().String())
			if text == "" {
				require.NoError(t, err, "%s %s", command, from)
				continue
			}
			require.ErrorContains(t, err, from+" is a sequence beyond the end of partition 0 (7); ", command)
			require.ErrorContains(t, err, text, command)
		}
	}
}

// TestPlaceIsHowLongAgo: every command that takes a place reads it in the same way. A Unix time with a unit would be
// a place decades ago.
func TestPlaceIsHowLongAgo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(90 * time.Minute) // virtual; the time begins with the year 2000
		for text, want := range map[string]string{"90m": "946684800000000000", "-90m": "946684800000000000", "0": "0", "12": "12", "latest": "latest"} {
			got, err := cli.Place(text)
			require.NoError(t, err)
			require.Equal(t, want, got, text)
		}
		_, err := cli.Place("946684800s")
		require.ErrorContains(t, err, "in 1970; a Unix time is written in ns")
	})
	asked := make(chan url.Values, 1)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/v1/cluster":
			fmt.Fprint(w, `{"topics":[{"topic":"orders","partitions":[{"partition":0,"leader":"n1"}]}]}`)
			return
		case "/v1/topic/channels", "/v1/topic/positions":
			fmt.Fprint(w, `{}`)
			return
		}
		asked <- r.URL.Query()
		http.Error(w, `{"message":"BUSY"}`, http.StatusBadRequest)
	}))
	defer s.Close()
	for _, c := range []struct {
		argument string
		command  []string
	}{
		{"to", []string{"channel", "seek", "orders", "c", "90m"}},
		{"from", []string{"channel", "create", "orders", "c", "--from", "90m"}},
		{"from", []string{"peek", "orders", "--from", "90m"}},
		{"from", []string{"export", "orders", "--from", "90m"}},
	} {
		_, err := run(t, time.Minute, append(c.command, "--nsqd-http-address", s.Listener.Addr().String())...)
		require.Error(t, err)
		require.Regexp(t, `^[0-9]{19}$`, (<-asked).Get(c.argument), c.command)
	}
}
