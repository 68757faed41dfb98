package cli

import (
	"regexp"
	"strings"
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

// Guarantee: systemd starts the server again after every end that "systemctl stop" did not ask for, a clean one too, however
// often that happens, and a reload sends SIGHUP, which ends nothing.
func TestUnitRestartsAfterEveryEnd(t *testing.T) {
	t.Parallel()
	unit := readDeploy(t, "systemd/keygate.service")
	for _, line := range []string{"Restart=always", "StartLimitIntervalSec=0", "ExecReload=/bin/kill -HUP $MAINPID"} {
		if !strings.Contains(unit, "\n"+line+"\n") {
			t.Errorf("the unit lacks %s", line)
		}
	}
	if strings.Contains(unit, "RestartPreventExitStatus") || strings.Contains(unit, "SuccessExitStatus") {
		t.Error("the unit does not restart after some ends")
	}
}
