package server

import (
	"strconv"
	"testing"

	"github.com/keygate/keygate/internal/config"
)

// Guarantee: contract 1. Whatever the limit of open files, the shares together stay below it,
// each client can have a connection to an upstream, and the management listener, the probes
// and the webhooks have descriptors of their own. With enough, nothing is lowered.
func TestDescriptorsAreSharedOut(t *testing.T) {
	t.Parallel()
	for _, files := range []uint64{minFiles, 256, 1000, 1024, 4096, 65536, 131072, 1 << 20, 1 << 30} {
		for _, wanted := range []int{1, 100, 65536} {
			d, err := shareDescriptors(files, true, wanted)
			if err != nil {
				t.Fatal(err)
			}
			sum := fixedFiles + maxClosing + d.clients + d.upstreams + d.admin + d.ops + 2*d.hooks + 2*d.pipes
			if sum > int(files) {
				t.Errorf("of %d descriptors, %d are given away: %+v", files, sum, d)
			}
			if d.clients < min(wanted, 20) || d.clients > wanted || d.upstreams-d.upstreams/9 < d.clients || d.admin < 8 || d.ops < 6 || d.hooks < 8 || d.pipes < 2 {
				t.Errorf("of %d descriptors, a share is too small or too large: %+v", files, d)
			}
		}
	}
	if d, err := shareDescriptors(1<<18, true, 65536); err != nil || d.clients != 65536 {
		t.Errorf("got %+v, error %v, want the 65536 connections of the default", d, err)
	}
	if d, err := shareDescriptors(0, false, 65536); err != nil || d.clients != 65536 || d.upstreams != 0 {
		t.Errorf("got %+v, error %v, want no limit", d, err)
	}
	if _, err := shareDescriptors(minFiles-1, true, 65536); err == nil {
		t.Error("got no error for too few descriptors")
	}
}

// Guarantee: when descriptors are few, one address cannot take all connections of the data
// plane, and GET /v1/settings shows the numbers in force. Otherwise both are as configured.
func TestOneAddressCannotTakeFewConnections(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ clients, perAddress, want int }{
		{100, 4096, 75}, {100, 10, 10}, {1, 4096, 1}, {65536, 4096, 4096}, {65536, 65536, 65536},
	} {
		settings := &config.Config{MaxConnections: 65536, MaxConnectionsPerAddress: c.perAddress}
		s := &Server{cfg: Config{Settings: settings}, descriptors: descriptors{clients: c.clients}}
		if got := s.descriptors.perAddress(65536, c.perAddress); got != c.want {
			t.Errorf("%d connections, %d from one address: got %d, want %d", c.clients, c.perAddress, got, c.want)
		}
		want := map[string]int{"max-connections": c.clients, "max-connections-per-address": c.want}
		for _, shown := range s.settings() {
			if n, ok := want[shown.Name]; ok && shown.Value != strconv.Itoa(n) {
				t.Errorf("%s: got %s, want %d", shown.Name, shown.Value, n)
			}
		}
	}
}
