package webhook

import (
	"fmt"
	"time"
)

// jitter is the part by which a wait may be longer or shorter, so that what
// failed together does not come back together.
const jitter = 0.2

// Schedule is how long to wait after each failed attempt but the last.
type Schedule struct {
	waits [MaxAttempts - 1]time.Duration
}

// NewSchedule returns the schedule with the given waits, each more than 0.
func NewSchedule(waits [MaxAttempts - 1]time.Duration) (Schedule, error) {
	for i, w := range waits {
		if w <= 0 {
			return Schedule{}, fmt.Errorf("the wait after attempt %d is %v and must be more than 0", i+1, w)
		}
	}
	return Schedule{waits: waits}, nil
}

// After returns what becomes of a delivery whose attempt with the given number
// failed at ended: Failed after the last, else RetryScheduled and the time of the
// next. random is from 0 up to 1. retryAfter is how long the endpoint asked to
// be left alone, 0 if it did not; it may make a wait longer, up to twice the
// schedule's own.
func (s Schedule) After(attempt int, ended time.Time, random float64, retryAfter time.Duration) (DeliveryState, time.Time) {
	if attempt >= MaxAttempts {
		return Failed, time.Time{}
	}
	own := s.waits[max(attempt, 1)-1]
	wait := own + time.Duration(float64(own)*jitter*(2*random-1))
	if retryAfter > wait {
		wait = min(retryAfter, 2*own)
	}
	return RetryScheduled, ended.Add(wait)
}
