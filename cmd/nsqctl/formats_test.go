package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	nsq "github.com/nsqio/go-nsq"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/lockstepmq/lockstep/internal/test/testkit/clitest"
)

// TestYAML is JSON in another form, also of a command that prints several values.
func TestYAML(t *testing.T) {
	at := "--nsqd-http-address=" + clitest.FakeBroker(t).Listener.Addr().String()
	out, err := run(t, time.Minute, "stats", "-o", "yaml", at)
	require.NoError(t, err)
	var topics []struct {
		Name  string `yaml:"topic_name"`
		Count int    `yaml:"message_count"`
	}
	require.NoError(t, yaml.Unmarshal([]byte(out), &topics))
	require.Equal(t, "orders", topics[0].Name)
	require.Equal(t, 50, topics[0].Count)
	out, err = run(t, time.Minute, "peek", "orders", "-o", "yaml", at)
	require.NoError(t, err)
	require.Contains(t, out, "body: one\n")
	require.Contains(t, out, "\n---\n")
}

func TestTailedLines(t *testing.T) {
	var out bytes.Buffer
	p := &printer{json: true, out: bufio.NewWriter(&out)}
	m := nsq.NewMessage(nsq.MessageID{'a'}, []byte("one"))
	m.Attempts = 3
	require.NoError(t, p.print(m))
	var x tailed
	require.NoError(t, json.Unmarshal(out.Bytes(), &x))
	require.Equal(t, "one", x.Body)
	require.EqualValues(t, 3, x.Attempts)
	m.Body = []byte{0xff}
	require.NoError(t, p.print(m))
	require.Contains(t, out.String(), `"body_base64":"/w=="`)
}

func TestDumpAsJSON(t *testing.T) {
	file := filepath.Join(t.TempDir(), "00000000000000000000.idx")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	out, err := run(t, time.Minute, "dump", file, "-o", "json")
	require.NoError(t, err)
	d := json.NewDecoder(bytes.NewReader([]byte(out)))
	for d.More() {
		var x struct{ File string }
		require.NoError(t, d.Decode(&x))
		require.Equal(t, file, x.File)
	}
	require.Contains(t, out, `"entries":0`)
}
