package service

import (
	"context"
	"time"
)

// Signal wakes a goroutine that receives from it. It holds one token, so that a goroutine that works meanwhile
// looks once more.
type Signal chan struct{}

// NewSignal returns a Signal without a token.
func NewSignal() Signal { return make(Signal, 1) }

// Notify puts the token into s, unless it is there already. It does not block.
func (s Signal) Notify() {
	select {
	case s <- struct{}{}:
	default:
	}
}

// Wait returns true after d, or false as soon as ctx ends.
func Wait(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
