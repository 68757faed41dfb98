package accesslog

import (
	"strings"
	"testing"
	"unsafe"
)

// Guarantee: the collector's memory is as Config documents it: 62 KiB for each 128 records,
// 31 MiB by default, and 32 MiB for long paths, which do not take room from other records.
func TestMemory(t *testing.T) {
	const size = unsafe.Sizeof(chunk{})
	t.Logf("%d bytes", size)
	if size > 62<<10 {
		t.Errorf("a chunk has %d bytes, want at most %d", size, 62<<10)
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
		t.Errorf("%d long paths were lost, want %d; they use %d bytes, want %d", c2.Lost(), want, c2.long.Load(), maxLong)
	}
	c2.Shard().Emit(&r, "", "/short")
	if err := c2.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	if c2.long.Load() != 0 || c2.Lost() != 10_000-maxLong/MaxPath {
		t.Errorf("after all records were taken: long paths use %d bytes, want 0; %d records lost, want %d", c2.long.Load(), c2.Lost(), 10_000-maxLong/MaxPath)
	}
	if c.made != defaultRecords/chunkEntries || uintptr(c.made)*size > 31<<20 || c.Lost() != defaultRecords {
		t.Errorf("%d chunks of %d bytes, want %d chunks in at most 31 MiB; %d records lost, want %d", c.made, size, defaultRecords/chunkEntries, c.Lost(), defaultRecords)
	}
}
