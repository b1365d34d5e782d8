package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/lockstepmq/lockstep/cmd/nsqctl/internal/brokerapi"
	"github.com/lockstepmq/lockstep/cmd/nsqctl/internal/cli"
)

const healthTextMax = 4096 // bounds the bytes that are read of an answer

func newHealth(t *cli.Target) *cobra.Command {
	var url string
	var timeout time.Duration
	var ready bool
	cmd := &cobra.Command{
		Use:   "health",
		Short: "probe one broker: exit code 0 if it is healthy, else 1",
		Long: `health requests one of a broker's probes and ends with 0 if the answer is 200, else with 1 and the
reason. It is for supervisors of images without a shell: /healthz reports whether the broker can store messages, /readyz
whether it serves and reaches the other brokers. The broker is the one on this machine, unless --nsqd-http-address or
--url on the command line names another one: the environment and profiles do not count. The HTTP port answers probes
without TLS, also of a broker that requires TLS.`,
		Example: `  nsqctl health
  nsqctl health --ready
  nsqctl health --nsqd-http-address n2.example:4151
  nsqctl health --url http://127.0.0.1:4151/readyz --timeout 2s`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
			defer cancel()
			if t.AddressFlag && (len(t.Addresses) > 1 || cmd.Flags().Changed("url")) {
				return cli.Usage("health probes one broker: give one --nsqd-http-address, or --url")
			}
			if !cmd.Flags().Changed("url") {
				address, path := cli.HTTPAddress, "/healthz"
				if t.AddressFlag {
					address = t.Addresses[0]
				}
				if ready {
					path = "/readyz"
				}
				url = "http://" + address + path
			}
			text, err := probe(ctx, t.HTTP, url)
			if err == nil {
				fmt.Fprintln(cmd.OutOrStdout(), text)
			}
			return err
		},
	}
	cmd.Flags().StringVar(&url, "url", "http://"+cli.HTTPAddress+"/healthz", "URL of the probe: /healthz or /readyz of the broker")
	cmd.Flags().BoolVar(&ready, "ready", false, "probe /readyz instead of /healthz")
	cmd.MarkFlagsMutuallyExclusive("url", "ready")
	cmd.Flags().DurationVar(&timeout, "timeout", 3*time.Second, "longest wait for the answer")
	return cmd
}

func probe(ctx context.Context, client *http.Client, url string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	resp, err := client.Do(req)
	if err != nil {
		return "", fmt.Errorf("%s: %w", req.Host, brokerapi.Reason(err))
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, healthTextMax))
	if err != nil {
		return "", fmt.Errorf("%s: %w", req.Host, brokerapi.Reason(err))
	}
	text := strings.TrimSpace(string(body))
	if resp.StatusCode != http.StatusOK {
		return "", fmt.Errorf("%s: %s: %s", url, resp.Status, text)
	}
	return text, nil
}
