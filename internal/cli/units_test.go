package cli

import (
	"regexp"
	"testing"

	"github.com/spf13/pflag"

	"github.com/keygate/keygate/internal/config"
)

// Guarantee: deploy/systemd/keygate.socket opens the address that the data plane has by default, where only this
// machine can connect.
func TestSocketUnitListensOnTheDefaultAddress(t *testing.T) {
	t.Parallel()
	c, err := config.Register(pflag.NewFlagSet("serve", pflag.ContinueOnError)).Load(func(string) (string, bool) { return "", false })
	if err != nil {
		t.Fatal(err)
	}
	streams := regexp.MustCompile(`(?m)^ListenStream=(.*)$`).FindAllStringSubmatch(readDeploy(t, "systemd/keygate.socket"), -1)
	if len(streams) != 1 || streams[0][1] != c.GatewayAddr {
		t.Errorf("the socket listens on %q, want %s alone", streams, c.GatewayAddr)
	}
}
