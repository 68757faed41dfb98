package spool_test

import (
	"strings"
	"testing"

	"github.com/keygate/keygate/internal/keygatetest/proctest"
	"github.com/keygate/keygate/internal/spool"
)

// Guarantee: a frame that the disk has no space for is refused, and the queue goes on as if it had not been
// there.
func TestFullDisk(t *testing.T) {
	if !proctest.Alone(t) {
		return
	}
	h := newHarness(t, 1<<20)
	h.add("a", 1)
	release := proctest.LimitFileSize(t, uint64(h.Bytes())+30)
	err := h.Append(spool.Frame{Records: 1, Payload: []byte(strings.Repeat("x", 100))})
	release()
	if err == nil {
		t.Fatal("a frame beyond the end of the disk was taken")
	}
	h.add("b", 1)
	h.reopen()
	h.want("after a full disk", h.drain(), "a", "b")
}
