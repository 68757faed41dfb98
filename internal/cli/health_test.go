package cli

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/keygate/keygate/client"
	"github.com/keygate/keygate/internal/gateway"
)

// Guarantee: --health has the parts of checks, with their headers beside it, and shows them in the same form; what it does not know
// is refused with what it knows.
func TestHealthFlag(t *testing.T) {
	of := func(args ...string) (string, error) {
		f := pflag.NewFlagSet("set", pflag.ContinueOnError)
		settingFlags(f, gateway.UpstreamSettings())
		if err := f.Parse(args); err != nil {
			return "", err
		}
		given, err := (&app{}).settingsOf(f, gateway.UpstreamSettings())
		if err != nil {
			return "", err
		}
		b, err := json.Marshal(given)
		return string(b), err
	}
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"--health", "path=/healthz"}, `{"health":{"path":"/healthz"}}`},
		{[]string{"--health", "path=/healthz?a=b, interval=5s,timeout=1s,unhealthy=3,healthy=1,statuses=200-299+304"}, `{"health":{"healthy":1,"interval":"5s","path":"/healthz?a=b","statuses":"200-299,304","timeout":"1s","unhealthy":3}}`},
		{[]string{"--health", "tcp"}, `{"health":{"tcp":true}}`},
		{[]string{"--health", "grpc"}, `{"health":{"grpc":""}}`},
		{[]string{"--health", "grpc=orders.v1.Orders"}, `{"health":{"grpc":"orders.v1.Orders"}}`},
		{[]string{"--health", ""}, `{"health":null}`},
		{[]string{"--health", "path=/", "--health-header", "X-Probe=s3cret"}, `{"health":{"headers":{"X-Probe":"s3cret"},"path":"/"}}`},
	} {
		if got, err := of(c.args...); err != nil || got != c.want {
			t.Errorf("%q: got %s, %v; want %s", c.args, got, err, c.want)
		}
	}
	for _, c := range []struct{ arg, want string }{
		{"every=5s", "use grpc, healthy, interval, path, statuses, tcp, timeout, unhealthy"}, {"path=/,healthy=x", "healthy must be a whole number"}, {"interval", "interval must have a value"},
	} {
		if _, err := of("--health", c.arg); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %s", c.arg, err, c.want)
		}
	}
	if _, err := of("--health-header", "X-Probe=s3cret"); err == nil || !strings.Contains(err.Error(), "needs --health") {
		t.Errorf("headers alone: got %v, want that they need --health", err)
	}
	h := &client.Health{Path: new("/healthz"), Interval: "10s", Timeout: "2s", Unhealthy: 2, Healthy: 3, Statuses: new("200,204"), Headers: map[string]string{"X-Probe": "***"}}
	if got := healthText(h); got != "path=/healthz,interval=10s,timeout=2s,unhealthy=2,healthy=3,statuses=200+204 (headers X-Probe)" {
		t.Errorf("got %s", got)
	}
	if healthText(nil) != "" || !strings.HasPrefix(healthText(&client.Health{TCP: true}), "tcp,") || !strings.HasPrefix(healthText(&client.Health{Grpc: new("")}), "grpc=,") {
		t.Error("the kind of check is not shown")
	}
}
