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

// Config is what a Collector is made of. The zero value of a field is its
// default.
type Config struct {
	// Sinks get every record, each batch in this order.
	Sinks []Sink
	// Shards is how many there are, rounded up to a power of two. Default: four
	// for each core.
	Shards int
	// Records is how many the collector holds at most: those that came while a
	// sink was busy. Default: 65536, which is more than 600 ms of 100,000 a second,
	// and takes up to 28 MiB, 56 KiB for each 128; fewer if paths are longer than
	// 190 bytes on average. Memory is taken when it is first needed, and kept. Paths
	// of more than 1 KiB take up to 32 MiB beside it, which are given back.
	Records int
	// Interval is the longest time for which a record lies in a lane while no
	// sink is busy. Default: 20 ms.
	Interval time.Duration
	// Log receives the defects of sinks. Nil discards.
	Log *slog.Logger
}

// Collector carries records from lanes to sinks. It is safe for concurrent use.
type Collector struct {
	cfg    Config
	shards []Shard // a power of two
	next   atomic.Uint32
	lost   atomic.Uint64
	long   atomic.Int64 // bytes of long paths
	panics atomic.Uint64

	mu    sync.Mutex // of what follows; a lane may be locked before it
	full  []*chunk
	free  []*chunk // the last one used is the first to be used again
	made  int      // chunks, wherever they are
	bound int      // of made

	drainNow chan struct{} // has room for one
	// emitToNewChunk is held by whoever calls sinks. It is a channel so that waiting for
	// it ends with a context.
	drainLock chan struct{}
	taking    []*chunk             // under turn
	logged    map[string]time.Time // by sink: when its defect was last logged; under turn

	group service.Group
}

// NewCollector returns a Collector. Records may be put at once; they are taken
// from Start on, and by Sync.
func NewCollector(cfg Config) (*Collector, error) {
	if cfg.Shards < 0 || cfg.Records < 0 || cfg.Interval < 0 {
		return nil, errors.New("make the collector of outcomes: a negative setting")
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
		drainNow:  make(chan struct{}, 1),
		drainLock: make(chan struct{}, 1),
		logged:    map[string]time.Time{},
	}
	for i := range c.shards {
		c.shards[i].collector = c
	}
	return c, nil
}

// Shard returns a lane for a new connection. Of a nil Collector it is the nil
// lane.
func (c *Collector) Shard() *Shard {
	if c == nil {
		return nil
	}
	return &c.shards[int(c.next.Add(1))&(len(c.shards)-1)]
}

// Lost returns the number of records that no sink got because there was no room
// for them, or because they came after Stop.
func (c *Collector) Lost() uint64 { return c.lost.Load() }

// Panics returns the number of batches at which a sink panicked.
func (c *Collector) Panics() uint64 { return c.panics.Load() }

// Start begins to call the sinks, until Stop.
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

// Stop gives the sinks what is left. Records that come later are counted as
// lost. The error is ctx's: a sink has not returned by then.
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

// Sync returns when every sink has taken every record that was put before the
// call. The error is ctx's.
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

// drain gives the sinks what lies in the lanes. The caller has the turn.
func (c *Collector) drain() {
	taking := c.taking[:0]
	for i := range c.shards {
		if chunk := c.shards[i].take(); chunk != nil {
			taking = append(taking, chunk)
		}
	}
	// Only now: a chunk that was full before its lane was looked at is here.
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

// reserveLong reports whether there is room for a long path, and takes it.
func (c *Collector) reserveLong(n int64) bool {
	if c.long.Add(n) > maxLong {
		c.long.Add(-n)
		return false
	}
	return true
}

// addFull takes a chunk that nobody fills any more.
func (c *Collector) addFull(full *chunk) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.full = append(c.full, full)
}

// swapChunk takes a full chunk, or nil, and returns an empty one, or nil if there
// is none.
func (c *Collector) swapChunk(full *chunk) (empty *chunk) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if full != nil {
		if c.full = append(c.full, full); len(c.full) >= c.bound/8 {
			select {
			case c.drainNow <- struct{}{}:
			default:
			}
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
