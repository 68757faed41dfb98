package service_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keygate/keygate/internal/service"
)

// Guarantee: a signal holds one token, however often it is notified, and notifying never blocks.
func TestSignalHoldsOneToken(t *testing.T) {
	s := service.NewSignal()
	s.Notify()
	s.Notify()
	<-s
	select {
	case <-s:
		t.Error("the signal holds a second token")
	default:
	}
}

// Guarantee: Wait lasts as long as it says, and ends with the context.
func TestWaitEndsWithTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		if !service.Wait(t.Context(), time.Minute) || time.Since(began) != time.Minute {
			t.Errorf("waited for %v, want a minute", time.Since(began))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if service.Wait(ctx, time.Minute) || time.Since(began) != time.Minute+time.Second {
			t.Errorf("waited for %v in all, want a minute and a second", time.Since(began))
		}
	})
}
