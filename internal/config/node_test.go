package config_test

import (
	"os"
	"strings"
	"testing"
	"time"
)

// Guarantee: the settings of several nodes have their defaults and ranges, and are refused without a
// database that nodes can share.
func TestNodeSettings(t *testing.T) {
	const url = "--database-url=postgres://k@localhost/k"
	c, err := load(t, []string{url}, nil, "")
	if err != nil {
		t.Fatal(err)
	}
	host, _ := os.Hostname()
	if c.Role != "all" || c.NodeName != host || c.LeaseTTL != 10*time.Second || c.OnDatabaseLoss != "refuse" {
		t.Errorf("the defaults are %q, %q, %v, %q", c.Role, c.NodeName, c.LeaseTTL, c.OnDatabaseLoss)
	}
	for _, tt := range []struct{ flag, problem string }{
		{"--role=control", ""}, {"--role=gateway", ""}, {"--role=data", "one of all, gateway, control"},
		{"--node-name=gw-1", ""}, {"--node-name=a/b", "not a valid node name"}, {"--node-name=a b", "not a valid node name"},
		{"--lease-ttl=2s", ""}, {"--lease-ttl=5m", ""}, {"--lease-ttl=1999ms", "between 2s and 5m"}, {"--lease-ttl=5m1s", "between 2s and 5m"},
		{"--on-database-loss=serve", ""}, {"--on-database-loss=ignore", "one of refuse, serve"},
		{"--database-listen-url=postgres://k@localhost/k", ""},
	} {
		_, err := load(t, []string{url, tt.flag}, nil, "")
		if got := err != nil; got != (tt.problem != "") || got && !strings.Contains(err.Error(), tt.problem) {
			t.Errorf("%s: got %v, want %q", tt.flag, err, tt.problem)
		}
		if tt.problem != "" {
			continue
		}
		if _, err := load(t, []string{tt.flag}, nil, ""); err == nil || !strings.Contains(err.Error(), "set --database-url too") {
			t.Errorf("%s without a database URL: got %v, want an error that names it", tt.flag, err)
		}
	}
}
