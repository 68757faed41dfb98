package telemetry

import "time"

// lag is the longest of what was noted lately: in the present minute and the one
// before, so that every look at it at least once a minute sees all. Times are
// microseconds.
type lag struct {
	minute       int64
	now, earlier int64
}

func (l *lag) note(now, d int64) {
	l.turn(now)
	l.now = max(l.now, d)
}

// turn goes on to the minute of now.
func (l *lag) turn(now int64) {
	switch minute := now / time.Minute.Microseconds(); {
	case minute == l.minute:
		return
	case minute == l.minute+1:
		l.earlier = l.now
	default:
		l.earlier = 0
	}
	l.minute, l.now = now/time.Minute.Microseconds(), 0
}

func (l *lag) seconds(now int64) float64 {
	l.turn(now)
	return float64(max(l.now, l.earlier)) * 1e-6
}
