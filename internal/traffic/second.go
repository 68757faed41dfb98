package traffic

import (
	"sort"
	"time"

	"github.com/keygate/keygate/internal/ratelimit"
)

// second replays the requests of one second that share a bucket, evenly spread over it. Its memory
// is reused.
type second struct {
	refused []int64
	ends    []int64
	list    [][2]int64
}

// play sends the requests of several groups, counts of each, through a limit. at is the Unix second,
// and since the number of seconds since the start of the replay. It returns how many requests of
// each group the limit refused, or nil if it refused none. The result is valid until the next call.
func (s *second) play(limit *ratelimit.Replay, at, since int64, bucket [16]byte, counts []int64) []int64 {
	now := ratelimit.Instant{Wall: at * int64(time.Second), Mono: since * int64(time.Second)}
	all := int64(0)
	for _, n := range counts {
		all += n
	}
	if all == 0 || limit.AdmitAll(now, all, int64(time.Second), bucket) {
		return nil
	}
	refused := spans{list: s.list[:0]}
	for i := int64(0); i < all; i++ {
		offset := i * int64(time.Second) / all
		one := ratelimit.Instant{Wall: now.Wall + offset, Mono: now.Mono + offset}
		wait := limit.Wait(one, bucket)
		if wait == 0 && limit.Admit(one, bucket) {
			continue
		}
		next := all // the next request that may be admitted; requests in between are refused
		if wait < int64(time.Second) {
			next = min(all, max(i+1, ((offset+wait)*all+int64(time.Second)-1)/int64(time.Second)))
		}
		refused.add(i, next)
		i = next - 1
	}
	s.list = refused.list
	return s.blame(counts, all, refused)
}

// blame assigns the refused requests to their groups. Request i of the second is request
// i×stride mod all in the order of counts, which mixes the groups evenly. It iterates over
// the refused or the admitted requests, whichever are fewer.
func (s *second) blame(counts []int64, all int64, refused spans) []int64 {
	if refused.total == 0 {
		return nil
	}
	s.refused = append(s.refused[:0], make([]int64, len(counts))...)
	admitted := refused.others(all)
	fewer, step := &refused, int64(1)
	if admitted.total < refused.total {
		fewer, step = &admitted, -1
		copy(s.refused, counts)
	}
	if len(counts) == 1 {
		s.refused[0] = refused.total
		return s.refused
	}
	s.ends = s.ends[:0] // index after the last request of each group
	sum := int64(0)
	for _, n := range counts {
		sum += n
		s.ends = append(s.ends, sum)
	}
	stride := strideOf(all)
	for _, span := range fewer.list {
		for i := span[0]; i < span[1]; i++ {
			number := i * stride % all
			s.refused[sort.Search(len(s.ends), func(k int) bool { return s.ends[k] > number })] += step
		}
	}
	return s.refused
}

// spans is an ordered list of ranges of numbers.
type spans struct {
	list  [][2]int64
	total int64
}

func (s *spans) add(from, to int64) {
	s.total += to - from
	if last := len(s.list) - 1; last >= 0 && s.list[last][1] == from {
		s.list[last][1] = to
		return
	}
	s.list = append(s.list, [2]int64{from, to})
}

// others returns the numbers from 0 up to all that are not in s.
func (s *spans) others(all int64) (o spans) {
	from := int64(0)
	for _, r := range s.list {
		if r[0] > from {
			o.add(from, r[0])
		}
		from = r[1]
	}
	if from < all {
		o.add(from, all)
	}
	return o
}

// strideOf returns a number near 0.618 n that is coprime to n.
func strideOf(n int64) int64 {
	s := max(1, n*618/1000)
	for gcd(s, n) != 1 {
		s++
	}
	return s
}

func gcd(a, b int64) int64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}
