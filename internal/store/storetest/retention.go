package storetest

import (
	"time"

	"github.com/keygate/keygate/internal/retention"
)

// Guarantee: the store returns the readings of the clock of retention that were saved last, and
// none before.
func testRetentionClock(h *harness) {
	for _, want := range []retention.State{
		{},
		{Readings: []retention.Reading{{Run: 0, Wall: epoch().UnixMicro()}}},
		{Readings: []retention.Reading{{Run: time.Minute, Wall: epoch().UnixMicro()}, {Run: 3*time.Hour + 7, Wall: -5}}},
	} {
		if len(want.Readings) > 0 {
			if err := h.SaveRetention(h.Context(), want); err != nil {
				h.Fatal(err)
			}
		}
		got, err := h.LoadRetention(h.Context())
		if err != nil {
			h.Fatal(err)
		}
		same(h, "the readings", got, want)
	}
}
