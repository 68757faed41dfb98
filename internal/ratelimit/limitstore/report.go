package limitstore

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/redis/rueidis"

	"github.com/keygate/keygate/internal/ratelimit"
)

// ServerReport is what a server of the store says about itself.
type ServerReport struct {
	Address      string
	Product      string // "Redis" or "Valkey"
	Version      string
	Replica      bool
	Policy       string // maxmemory-policy
	MaxMemory    int64  // bytes; 0 for no bound
	UsedMemory   int64  // bytes
	Evicted      int64  // keys, since it was started
	Replicas     int64
	AppendOnly   bool // it writes an append-only file
	SavesDumps   bool // it has written a dump since it was started
	Uptime       time.Duration
	Latency      time.Duration // median of several round trips
	ClockAhead   time.Duration // by how much its clock is ahead of ours; negative if it is behind
	OldVersion   bool          // it is older than Redis 6.2 or Valkey 7.2
	UnsafePolicy bool          // it may evict keys, and with them the use of limits
}

const latencySamples = 9

// Report connects to the store and describes its servers, ordered by address. It is an error if there is no
// connection; the error has no password.
func (s *Store) Report(ctx context.Context) ([]ServerReport, error) {
	c, err := s.connect()
	if err != nil {
		return nil, err
	}
	var reports []ServerReport
	for address, node := range c.Nodes() {
		r, err := report(ctx, node)
		if err != nil {
			return nil, fmt.Errorf("inspect the limit store: %w", err)
		}
		r.Address = address
		reports = append(reports, r)
	}
	slices.SortFunc(reports, func(a, b ServerReport) int { return cmp.Compare(a.Address, b.Address) })
	return reports, nil
}

func report(ctx context.Context, c rueidis.Client) (r ServerReport, err error) {
	text, err := c.Do(ctx, c.B().Info().Build()).ToString()
	if err != nil {
		return r, err
	}
	info := parseInfo(text)
	number := func(name string) int64 {
		n, _ := strconv.ParseInt(info[name], 10, 64) // 0 where a service leaves it out
		return n
	}
	r = ServerReport{
		Product: "Redis", Version: info["redis_version"], Replica: info["role"] == "slave", Policy: info["maxmemory_policy"],
		MaxMemory: number("maxmemory"), UsedMemory: number("used_memory"), Evicted: number("evicted_keys"), Replicas: number("connected_slaves"),
		AppendOnly: info["aof_enabled"] == "1", SavesDumps: number("rdb_saves") > 0, Uptime: time.Duration(number("uptime_in_seconds")) * time.Second,
	}
	oldest := [2]int{6, 2}
	if v := info["valkey_version"]; v != "" {
		r.Product, r.Version, oldest = "Valkey", v, [2]int{7, 2}
	}
	r.OldVersion = olderThan(r.Version, oldest)
	r.UnsafePolicy = r.Policy != "" && r.Policy != "noeviction"
	return r, r.measure(ctx, c)
}

// olderThan reports whether a version, as in "7.2.4", is older than a major and minor number.
func olderThan(version string, oldest [2]int) bool {
	var have [2]int
	if n, _ := fmt.Sscanf(version, "%d.%d", &have[0], &have[1]); n < 2 {
		return false // unknown
	}
	return slices.Compare(have[:], oldest[:]) < 0
}

// measure measures round trips, and compares the clocks over the shortest of them.
func (r *ServerReport) measure(ctx context.Context, c rueidis.Client) error {
	type sample struct{ took, ahead time.Duration }
	var samples []sample
	for range latencySamples {
		before := time.Now()
		parts, err := c.Do(ctx, c.B().Time().Build()).AsStrSlice()
		if err != nil {
			return err
		}
		took := time.Since(before)
		if len(parts) != 2 {
			return errAnswer
		}
		seconds, err1 := strconv.ParseInt(parts[0], 10, 64)
		micros, err2 := strconv.ParseInt(parts[1], 10, 64)
		if err1 != nil || err2 != nil {
			return errAnswer
		}
		samples = append(samples, sample{took, time.Unix(seconds, micros*1000).Sub(before.Add(took / 2))})
	}
	slices.SortFunc(samples, func(a, b sample) int { return cmp.Compare(a.took, b.took) })
	r.Latency, r.ClockAhead = samples[len(samples)/2].took, samples[0].ahead
	return nil
}

// TryScript runs the script of limits on a bucket of its own, which it removes again. It is an error if the
// store does not run it.
func (s *Store) TryScript(ctx context.Context) error {
	c, err := s.connect()
	if err != nil {
		return err
	}
	take := ratelimit.Take{Name: "{doctor}:" + s.cfg.Node, Amount: 1, Capacity: 1, Count: 1, Per: time.Second.Microseconds(), Version: 1, Left: -1}
	questions := []ratelimit.Question{{Requests: 1, Takes: []ratelimit.Take{take}}}
	if err := s.ask(ctx, c, questions); err != nil {
		return err
	}
	if questions[0].Admitted != 1 {
		return errAnswer
	}
	if err := c.Do(ctx, c.B().Del().Key(s.prefix+take.Name).Build()).Error(); err != nil {
		return fmt.Errorf("remove a key: %w", err)
	}
	return nil
}
