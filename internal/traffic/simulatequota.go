package traffic

import (
	"time"

	"github.com/keygate/keygate/internal/calendar"
)

// QuotaLimit is a quota of a plan: so many requests in each calendar window.
type QuotaLimit struct {
	Count    int64
	Calendar calendar.Calendar
	Allow    bool // requests beyond the count are not refused
}

// quotaReplay replays requests through a quota.
type quotaReplay struct {
	QuotaLimit
	begin int64 // Unix second of the start of the replay

	// The window of the latest request.
	end   int64 // Unix second
	whole bool  // all of it is in the time of the replay
	used  map[[16]byte]int64
}

// play sends the requests of several groups, counts of each, through the quota, as second.play does through a limit. If
// the window began before the replay, it refuses those beyond the count, and returns how many of the others there are,
// since what was used of the window before is not known.
func (q *quotaReplay) play(s *second, at int64, bucket [16]byte, counts []int64) (refused []int64, unknown int64) {
	if q.Allow {
		return nil, 0
	}
	if at >= q.end || q.used == nil {
		start, end := q.Calendar.Window(time.Unix(at, 0))
		q.end, q.whole, q.used = end.Unix(), start.Unix() >= q.begin, map[[16]byte]int64{}
	}
	all := int64(0)
	for _, n := range counts {
		all += n
	}
	admitted := min(all, q.Count-q.used[bucket])
	q.used[bucket] += admitted
	if !q.whole {
		unknown = admitted
	}
	beyond := spans{list: s.list[:0]}
	if admitted < all {
		beyond.add(admitted, all)
	}
	s.list = beyond.list
	return s.blame(counts, all, beyond), unknown
}
