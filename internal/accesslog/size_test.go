package accesslog

import (
	"strings"
	"testing"
	"unsafe"
)

// Guarantee: the collector's memory is what Config says: 56 KiB for each 128
// records, 28 MiB by default, and 32 MiB for long paths, which take no room from
// others.
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
	shard := c.Shard()
	var r Record
	for range 2 * defaultRecords {
		shard.Emit(&r, "", "/")
	}
	long := strings.Repeat("x", MaxPath)
	c2, err := NewCollector(Config{})
	if err != nil {
		t.Fatal(err)
	}
	for range 10_000 {
		c2.Shard().Emit(&r, "", long)
	}
	if want := uint64(10_000 - maxLong/MaxPath); c2.Lost() != want || c2.long.Load() != maxLong {
		t.Errorf("%d of %d long paths were lost, %d bytes are held", c2.Lost(), want, c2.long.Load())
	}
	c2.Shard().Emit(&r, "", "/short")
	if err := c2.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	if c2.long.Load() != 0 || c2.Lost() != 10_000-maxLong/MaxPath {
		t.Errorf("%d bytes are held after all was taken, %d are lost", c2.long.Load(), c2.Lost())
	}
	if c.made != defaultRecords/chunkEntries || uintptr(c.made)*size > 28<<20 || c.Lost() != defaultRecords {
		t.Errorf("%d chunks of %d bytes, %d lost", c.made, size, c.Lost())
	}
}
