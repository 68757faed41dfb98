package telemetry

import "time"

// maxDelay is the longest delay of the current minute and of the minute before, so that a reader
// that reads it at least once a minute misses none. Times and delays are in microseconds.
type maxDelay struct {
	minute            int64
	current, previous int64 // the longest delay of this minute, and of the minute before
}

// note adds a delay.
func (l *maxDelay) note(now, d int64) {
	l.advance(now)
	l.current = max(l.current, d)
}

// advance moves on to the minute of now.
func (l *maxDelay) advance(now int64) {
	switch minute := now / time.Minute.Microseconds(); {
	case minute == l.minute:
		return
	case minute == l.minute+1:
		l.previous = l.current
	default:
		l.previous = 0
	}
	l.minute, l.current = now/time.Minute.Microseconds(), 0
}

// seconds returns the longest delay in seconds.
func (l *maxDelay) seconds(now int64) float64 {
	l.advance(now)
	return float64(max(l.current, l.previous)) * 1e-6
}
