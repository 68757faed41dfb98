//go:build linux

package keygate

import (
	"bytes"
	"runtime"
	"runtime/pprof"
	"testing"
)

// Guarantee: the statistics in this Go version's heap profiles are found.
func TestReadHeapOfThisGoVersion(t *testing.T) {
	var b bytes.Buffer
	if err := pprof.Lookup("heap").WriteTo(&b, 1); err != nil {
		t.Fatal(err)
	}
	h, err := readHeap(b.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	if h.Live <= 0 || h.Live > int64(m.Sys) || h.Stacks <= 0 || h.Stacks > int64(m.Sys) || h.Free < 0 || h.Free > int64(m.Sys) {
		t.Errorf("got %+v, want figures between 0 and %d", h, m.Sys)
	}
	if _, err := readHeap([]byte("heap profile: 1: 2\n")); err == nil {
		t.Error("a profile without statistics was accepted")
	}
}
