package server

import (
	"testing"
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
