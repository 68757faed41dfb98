package webhook

import (
	"fmt"
	"time"
)

// jitter is the fraction by which a wait is randomly lengthened or shortened, so that
// deliveries that failed together are not retried together.
const jitter = 0.2

// Schedule holds the waits after each failed attempt except the last.
type Schedule struct {
	waits [MaxAttempts - 1]time.Duration
}

// NewSchedule returns a schedule with the given waits. Each must be more than 0.
func NewSchedule(waits [MaxAttempts - 1]time.Duration) (Schedule, error) {
	for i, w := range waits {
		if w <= 0 {
			return Schedule{}, fmt.Errorf("the wait after attempt %d must be more than 0, not %v", i+1, w)
		}
	}
	return Schedule{waits: waits}, nil
}

// After returns the state of a delivery whose attempt with the given number, from 1, failed at
// ended: Failed after the last attempt, otherwise RetryScheduled and the time of the next attempt.
// random in [0, 1) chooses the jitter. retryAfter is the wait that the endpoint asked for, or 0; it
// may lengthen a wait to at most twice the schedule's.
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
