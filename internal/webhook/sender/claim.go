package sender

import (
	"context"
	"time"
)

// Timing of the claims.
const (
	// idlePoll is the default of Config.Poll.
	idlePoll = 5 * time.Second
	// scanPage is how many endpoints are stepped over at once to find endpoints with due
	// deliveries, however these became due. scanPause is the time between two such pages, except at
	// the start, and scanRest the time between two scans.
	scanPage  = 64
	scanPause = 20 * time.Millisecond
	scanRest  = 10 * time.Second
	// retryStore is how long it waits after the store failed.
	retryStore = time.Second
	// claimTimeout is how long one call of the store may take.
	claimTimeout = 10 * time.Second
)

// SharedPoll is the Config.Poll of senders that share a queue: a delivery that one node creates must
// not wait longer for other nodes.
const SharedPoll = 250 * time.Millisecond

// finder finds the endpoints with due deliveries. A look finds the deliveries that were created or
// became due since the last look, and costs in proportion to their number. Scans of all endpoints,
// a few at a time, find the rest: deliveries that were due at the start, that another process
// handed back, or whose account is not suspended any more.
type finder struct {
	mark     Mark
	after    string    // last endpoint of the scan
	scanning bool      // a scan is under way
	scanAt   time.Time // when the next page, or the next scan, is due
	scans    int       // that have ended
	again    bool      // the scan that is under way may have passed deliveries that were released since
	// releaseAt is when to look for the deliveries of ended leases again.
	releaseAt time.Time
}

// claimAll claims deliveries and starts to send them until ctx ends.
func (s *Sender) claimAll(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	var f finder
	for ctx.Err() == nil {
		wait, err := s.claimOnce(&f)
		if err != nil {
			s.stats.storeErrors.Add(1)
			s.cfg.Log.WarnContext(ctx, "cannot find or claim webhook deliveries; trying again", "error", err)
			wait = retryStore
		}
		if wait <= 0 {
			continue
		}
		s.dispatcher.sweep()
		timer.Reset(wait)
		select {
		case <-timer.C:
		case <-s.dispatcher.wake:
		case <-ctx.Done():
		}
	}
}

// claimOnce finds endpoints with due deliveries and makes one claim. It returns how long to wait
// before the next claim, unless the dispatcher asks for it earlier.
func (s *Sender) claimOnce(f *finder) (wait time.Duration, err error) {
	// Stop lets a claim finish, because the store may have carried out an interrupted claim.
	ctx, cancel := context.WithTimeout(s.claiming.Grace(), claimTimeout)
	defer cancel()
	if err := s.find(ctx, f); err != nil {
		return 0, err
	}
	w := s.dispatcher.claim()
	var jobs []Job
	if len(w.Wants) > 0 {
		jobs, err = s.cfg.Queue.ClaimDeliveries(ctx, w.Claim)
	}
	s.stats.claimed.Add(int64(len(jobs)))
	if again := s.dispatcher.claimed(w, jobs, err); again || err != nil {
		return 0, err
	}
	return min(s.dispatcher.nextWork(), max(0, f.scanAt.Sub(s.cfg.Now()))), nil
}

// find looks for newly due deliveries if it is time to, and takes the next page of a scan.
func (s *Sender) find(ctx context.Context, f *finder) error {
	now, look := s.dispatcher.dueToLook()
	if look {
		if err := s.look(ctx, f, now); err != nil {
			s.dispatcher.lookBy(now)
			return err
		}
	}
	if err := s.releaseEnded(ctx, f, now); err != nil {
		return err
	}
	if now.Before(f.scanAt) && f.scanAt.Sub(now) <= scanRest { // otherwise the clock was set back
		return nil
	}
	return s.scan(ctx, f, now)
}

func (s *Sender) look(ctx context.Context, f *finder, now time.Time) error {
	if f.mark == (Mark{}) {
		return nil // the first scan sets it
	}
	found, next, more, err := s.cfg.Queue.NewlyDue(ctx, f.mark, now)
	if err != nil {
		return err
	}
	f.mark = next
	s.dispatcher.found(found)
	if more {
		s.dispatcher.lookBy(now)
		return nil
	}
	at, err := s.cfg.Queue.NextDelivery(ctx, now)
	if err == nil && !at.IsZero() {
		s.dispatcher.lookBy(at)
	}
	return err
}

// scan takes the next page of a scan, or begins one.
func (s *Sender) scan(ctx context.Context, f *finder, now time.Time) error {
	if !f.scanning {
		// What becomes due from here on is found by looks.
		_, mark, _, err := s.cfg.Queue.NewlyDue(ctx, Mark{}, now)
		if err != nil {
			return err
		}
		if f.mark == (Mark{}) {
			s.dispatcher.lookBy(now)
		}
		if mark.Created < f.mark.Created || mark.DueAt.Before(f.mark.DueAt) || f.mark == (Mark{}) {
			f.mark = mark // the newest deliveries were removed, or the clock was set back
		}
		f.scanning, f.after = true, ""
	}
	found, last, err := s.cfg.Queue.AllDue(ctx, f.after, scanPage, now)
	if err != nil {
		return err
	}
	s.dispatcher.found(found)
	f.after = last
	switch {
	case last == "":
		f.scanning, f.scanAt = false, now.Add(scanRest)
		f.scans++
		if f.again {
			f.again, f.scanAt = false, now
		}
	case f.scans == 0:
		f.scanAt = now
	default:
		f.scanAt = now.Add(scanPause)
	}
	return nil
}
