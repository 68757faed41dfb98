package outcome

import (
	"testing"
	"unsafe"
)

// Guarantee: the collector's memory is what Config says: 56 KiB for each 128
// records, 28 MiB by default.
func TestMemory(t *testing.T) {
	const size = unsafe.Sizeof(chunk{})
	t.Logf("%d bytes", size)
	if size > 56<<10 {
		t.Errorf("a chunk has %d bytes", size)
	}
	c, err := NewCollector(Config{})
	if err != nil {
		t.Fatal(err)
	}
	lane := c.Lane()
	var r Record
	for range 2 * defaultRecords {
		lane.Put(&r, "", "/")
	}
	if c.made != defaultRecords/chunkEntries || uintptr(c.made)*size > 28<<20 || c.Lost() != defaultRecords {
		t.Errorf("%d chunks of %d bytes, %d lost", c.made, size, c.Lost())
	}
}
