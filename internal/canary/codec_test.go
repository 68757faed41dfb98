package canary

import (
	"bytes"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func drawTally(t *rapid.T, most int) *Tally {
	var tally Tally
	for range rapid.IntRange(0, most).Draw(t, "callers") {
		requests := rapid.Uint64Range(1, 1000).Draw(t, "requests")
		c := Counts{requests, rapid.Uint64Range(0, requests).Draw(t, "bad")}
		side := Side(rapid.IntRange(0, 1).Draw(t, "side"))
		if rapid.IntRange(0, 9).Draw(t, "rest") == 0 {
			tally.AddRest(side, c)
		} else {
			tally.Add(side, rapid.OneOf(rapid.Uint64Range(0, 5), rapid.Uint64()).Draw(t, "caller"), c)
		}
		tally.AddLatency(side, time.Duration(rapid.Int64Range(0, int64(2*time.Hour)).Draw(t, "latency")))
	}
	return &tally
}

// Guarantee: tallies and steps are stored exactly, and steps go on after they were stored as without it.
func TestStoredStepsGoOn(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		kept, stored := NewStep(), NewStep()
		for range rapid.IntRange(0, 10).Draw(t, "tallies") {
			tally := drawTally(t, 10)
			data, err := tally.MarshalBinary()
			var again Tally
			if err != nil || again.UnmarshalBinary(data) != nil || !again.Equal(tally) {
				t.Fatalf("got %+v, want %+v", again, tally)
			}
			at := time.Duration(rapid.IntRange(0, 100).Draw(t, "minute")) * time.Minute
			kept.AddTally(at, tally)
			stored.AddTally(at, &again)
			if data, err = stored.MarshalBinary(); err != nil {
				t.Fatal(err)
			}
			stored = NewStep()
			if err := stored.UnmarshalBinary(data); err != nil {
				t.Fatal(err)
			}
		}
		a, _ := kept.MarshalBinary()
		b, _ := stored.MarshalBinary()
		if !bytes.Equal(a, b) || !kept.Equal(&stored.Tally) {
			t.Fatal("the step that was stored differs")
		}
		if c := testConfig(); kept.Decide(c, minute(5)) != stored.Decide(c, minute(5)) {
			t.Fatal("the step that was stored is judged in another way")
		}
	})
}

// Guarantee: what a step tells apart is bounded, for an account and for all; what is beyond that counts together, and nothing is lost.
// Memory of steps that have ended is there for others.
func TestRoom(t *testing.T) {
	room := NewRoom(100 * callerBytes)
	a, b := NewStepIn(room, "a"), NewStepIn(room, "b")
	for caller := range uint64(1000) {
		a.Add(Next, caller, Counts{2, 1})
	}
	if a.Callers() != 75 || a.Counts(Next) != (Counts{2000, 1000}) {
		t.Errorf("got %d callers and %v, want 75 and 2000", a.Callers(), a.Counts(Next))
	}
	for caller := range uint64(1000) {
		b.Add(Next, caller, Counts{1, 0})
	}
	if b.Callers() < 15 || room.Taken() > 100*callerBytes {
		t.Errorf("got %d callers of the other account with %d bytes, want 15 at least", b.Callers(), room.Taken())
	}
	var l Sketch
	l.Add(time.Second)
	for m := range 10 {
		a.AddLatencies(Next, minute(m), &l)
	}
	sum := uint64(0)
	for _, l := range a.minutes {
		sum += l.count()
	}
	if sum != 10 || len(a.minutes) != 1 {
		t.Errorf("got %d latencies in %d minutes, want 10 in 1", sum, len(a.minutes))
	}
	a.Release()
	b.Release()
	if room.Taken() != 0 || room.Of("a") != 0 || room.Of("b") != 0 {
		t.Errorf("%d bytes are taken, want 0", room.Taken())
	}

	alone := NewStep()
	for m := range maxMinutes + 10 {
		alone.AddLatencies(Next, minute(m), &l)
	}
	for caller := range uint64(maxCallers + 10) {
		alone.Add(Next, caller, Counts{1, 0})
	}
	if len(alone.minutes) != maxMinutes || alone.Callers() != maxCallers || alone.Counts(Next).Requests != maxCallers+10 {
		t.Errorf("got %d minutes, %d callers, %v", len(alone.minutes), alone.Callers(), alone.Counts(Next))
	}
}

// Guarantee: lists of callers are stored exactly.
func TestCallersAreStored(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := rapid.SliceOfN(rapid.OneOf(rapid.Uint64(), rapid.Uint64Range(0, 9)), 0, 50).Draw(t, "callers")
		got, err := DecodeCallers(EncodeCallers(slices.Clone(want)))
		slices.Sort(want)
		if want = slices.Compact(want); err != nil || !slices.Equal(got, want) {
			t.Fatalf("got %v, %v; want %v", got, err, want)
		}
	})
}

// FuzzStep decodes arbitrary data. What is accepted can be judged, and is stored as it was read.
func FuzzStep(f *testing.F) {
	s := NewStep()
	addCallers(s, Next, 29, 290, 18)
	addCallers(s, Other, 500, 28_710, 31)
	addLatencies(s, Next, minute(3), 50, 5)
	addLatencies(s, Next, minute(7), 50, 5)
	data, _ := s.MarshalBinary()
	f.Add(data)
	f.Add([]byte{codecVersion})
	f.Fuzz(func(t *testing.T, data []byte) {
		s := NewStep()
		if s.UnmarshalBinary(data) != nil {
			if !s.Empty() || len(s.minutes) > 0 {
				t.Fatal("a step that was refused has requests")
			}
			return
		}
		d := s.Decide(testConfig(), minute(20))
		once, _ := s.MarshalBinary()
		again := NewStep()
		if err := again.UnmarshalBinary(once); err != nil {
			t.Fatal(err)
		}
		if twice, _ := again.MarshalBinary(); !bytes.Equal(once, twice) || again.Decide(testConfig(), minute(20)) != d {
			t.Fatal("the step is not stored as it was read")
		}
		if callers, err := DecodeCallers(data); err == nil {
			if again, err := DecodeCallers(EncodeCallers(callers)); err != nil || !slices.Equal(again, callers) {
				t.Fatal("callers are not stored as they were read")
			}
		}
		_ = new(Tally).UnmarshalBinary(data)
	})
}
