package accesslog

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/bits"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/keygate/keygate/internal/service"
)

const (
	defaultRecords  = 64 << 10
	defaultInterval = 20 * time.Millisecond
	maxLong         = 32 << 20 // bytes of long paths
)

// Config configures a Collector. A zero field means its default.
type Config struct {
	// Sinks receive every record. They get each batch in this order.
	Sinks []Sink
	// Shards is the number of shards, rounded up to a power of two. The default is four for
	// each core.
	Shards int
	// Records is the largest number of records that the Collector holds, which accumulate
	// while a sink is busy. The default is 65536: more than 600 ms at 100,000 a second, and
	// up to 31 MiB of memory (62 KiB for each 128 records). It is fewer records if paths
	// are longer than 70 bytes on average. Memory is allocated when first needed, and
	// kept. Paths of more than 1 KiB take up to 32 MiB in addition, which are freed after
	// use.
	Records int
	// Interval is the longest time that a record stays in a shard while no sink is busy.
	// The default is 20 ms.
	Interval time.Duration
	// Log receives the panics of sinks. Nil discards them.
	Log *slog.Logger
}

// Collector carries records from shards to sinks. It is safe for concurrent use.
type Collector struct {
	cfg    Config
	shards []Shard // a power of two
	next   atomic.Uint32
	lost   atomic.Uint64
	long   atomic.Int64 // bytes of long paths
	panics atomic.Uint64

	mu    sync.Mutex // guards the fields below; a shard's lock may be held when taking it
	full  []*chunk
	free  []*chunk // a stack, so that the last one used is reused first
	made  int      // number of chunks that exist
	bound int      // largest value of made

	drainNow service.Signal
	// drainLock is held by the goroutine that calls the sinks. It is a channel so that a
	// context can end the wait for it.
	drainLock chan struct{}
	taking    []*chunk             // guarded by drainLock
	logged    map[string]time.Time // by sink: when a panic was last logged; guarded by drainLock

	group service.Group
}

// NewCollector returns a Collector. Records may be emitted at once. They are delivered by
// Sync, and from Start on also in the background. The only error is a negative setting.
func NewCollector(cfg Config) (*Collector, error) {
	if cfg.Shards < 0 || cfg.Records < 0 || cfg.Interval < 0 {
		return nil, errors.New("accesslog: Config.Shards, Config.Records and Config.Interval must not be negative")
	}
	if cfg.Shards == 0 {
		cfg.Shards = 4 * runtime.GOMAXPROCS(0)
	}
	if cfg.Records == 0 {
		cfg.Records = defaultRecords
	}
	if cfg.Interval == 0 {
		cfg.Interval = defaultInterval
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	c := &Collector{
		cfg:       cfg,
		shards:    make([]Shard, 1<<bits.Len(uint(cfg.Shards-1))),
		bound:     (cfg.Records + chunkEntries - 1) / chunkEntries,
		drainNow:  service.NewSignal(),
		drainLock: make(chan struct{}, 1),
		logged:    map[string]time.Time{},
	}
	for i := range c.shards {
		c.shards[i].collector = c
	}
	return c, nil
}

// Shard returns a shard for a new connection. For a nil Collector, it returns the nil
// Shard.
func (c *Collector) Shard() *Shard {
	if c == nil {
		return nil
	}
	return &c.shards[int(c.next.Add(1))&(len(c.shards)-1)]
}

// Lost returns the number of records that were not delivered because there was no room, or
// because they were emitted after Stop.
func (c *Collector) Lost() uint64 { return c.lost.Load() }

// Panics returns the number of batches for which a sink panicked.
func (c *Collector) Panics() uint64 { return c.panics.Load() }

// Start begins to call the sinks in the background, until Stop.
func (c *Collector) Start(context.Context) error {
	if err := c.group.Start(c.run); err != nil {
		return fmt.Errorf("start the access log: %w", err)
	}
	return nil
}

func (c *Collector) run(ctx context.Context) {
	ticks := time.NewTicker(c.cfg.Interval)
	defer ticks.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticks.C:
		case <-c.drainNow:
		}
		c.drainLock <- struct{}{}
		c.drain()
		<-c.drainLock
	}
}

// Stop delivers the remaining records to the sinks. Records emitted later are counted as
// lost. It returns ctx's error if a sink has not returned when ctx ends.
func (c *Collector) Stop(ctx context.Context) error {
	for i := range c.shards {
		c.shards[i].close()
	}
	if err := c.group.Stop(ctx); err != nil {
		return fmt.Errorf("stop the access log: %w", err)
	}
	if err := c.Sync(ctx); err != nil {
		return fmt.Errorf("stop the access log: %w", err)
	}
	return nil
}

// Sync returns when every sink has taken every record that was emitted before the call. The error
// is ctx.Err().
func (c *Collector) Sync(ctx context.Context) error {
	select {
	case c.drainLock <- struct{}{}:
	case <-ctx.Done():
		return fmt.Errorf("wait for the sinks: %w", ctx.Err())
	}
	defer func() { <-c.drainLock }()
	c.drain()
	return nil
}

// drain delivers the records in the shards. The caller holds drainLock.
func (c *Collector) drain() {
	taking := c.taking[:0]
	for i := range c.shards {
		if chunk := c.shards[i].take(); chunk != nil {
			taking = append(taking, chunk)
		}
	}
	// Read after the shards, because c.full then has each chunk that became full before its shard was read.
	c.mu.Lock()
	taking = append(taking, c.full...)
	clear(c.full)
	c.full = c.full[:0]
	c.mu.Unlock()
	for i, chunk := range taking {
		for _, sink := range c.cfg.Sinks {
			c.deliver(sink, chunk.batch())
		}
		if long := chunk.reset(); long > 0 {
			c.long.Add(-long)
		}
		c.mu.Lock()
		c.free = append(c.free, chunk)
		c.mu.Unlock()
		taking[i] = nil
	}
	c.taking = taking[:0]
}

// reserveLong reserves memory for a long path. It reports false if there is none left.
func (c *Collector) reserveLong(n int64) bool {
	if c.long.Add(n) > maxLong {
		c.long.Add(-n)
		return false
	}
	return true
}

// addFull adds a chunk that is no longer being filled to the full chunks.
func (c *Collector) addFull(full *chunk) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.full = append(c.full, full)
}

// swapChunk takes a full chunk, or nil, and returns an empty one, or nil if there is none
// left.
func (c *Collector) swapChunk(full *chunk) (empty *chunk) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if full != nil {
		if c.full = append(c.full, full); len(c.full) >= c.bound/8 {
			c.drainNow.Notify()
		}
	}
	if last := len(c.free) - 1; last >= 0 {
		empty, c.free[last] = c.free[last], nil
		c.free = c.free[:last]
		return empty
	}
	if c.made == c.bound {
		return nil
	}
	c.made++
	return new(chunk)
}
