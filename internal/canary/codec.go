package canary

import (
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"maps"
	"math"
	"slices"
	"time"
)

// codecVersion is the first byte of what is stored. Tallies and steps are rows that other versions may read: another form gets
// another number.
const codecVersion = 1

// mostRequests bounds stored numbers, so that sums of them do not overflow.
const mostRequests = 1 << 53

// MarshalBinary implements encoding.BinaryMarshaler: uvarints, the callers and bins in their order as differences. The error is nil.
func (t *Tally) MarshalBinary() ([]byte, error) {
	b := make([]byte, 1, 64+12*len(t.callers))
	b[0] = codecVersion
	return t.append(b), nil
}

func (t *Tally) append(b []byte) []byte {
	for side := range t.sides {
		b = t.sides[side].append(b)
		b = appendBins(b, t.slow[side].all())
	}
	b = binary.AppendUvarint(b, uint64(len(t.callers)))
	last := uint64(0)
	for _, caller := range slices.Sorted(maps.Keys(t.callers)) {
		b = binary.AppendUvarint(b, caller-last)
		last = caller
		c := t.callers[caller]
		b = c.append(b)
	}
	return b
}

func (c *Counts) append(b []byte) []byte {
	return binary.AppendUvarint(binary.AppendUvarint(b, c.Requests), c.Bad)
}

// appendBins appends the bins of a sketch, and their number before them.
func appendBins(b []byte, bins iter.Seq2[int, uint32]) []byte {
	n := 0
	for range bins {
		n++
	}
	b = binary.AppendUvarint(b, uint64(n))
	last := 0
	for bin, n := range bins {
		b = binary.AppendUvarint(binary.AppendUvarint(b, uint64(bin-last)), uint64(n))
		last = bin
	}
	return b
}

// UnmarshalBinary implements encoding.BinaryUnmarshaler. The error is data that no Tally has.
func (t *Tally) UnmarshalBinary(data []byte) error {
	var read Tally
	d := decoder{rest: data}
	d.version()
	d.tally(&read)
	if err := d.end(); err != nil {
		return fmt.Errorf("decode the counts of a canary: %w", err)
	}
	*t = read
	return nil
}

// MarshalBinary implements encoding.BinaryMarshaler. The error is nil.
func (s *Step) MarshalBinary() ([]byte, error) {
	b, _ := s.Tally.MarshalBinary() // see there
	b = binary.AppendUvarint(b, uint64(len(s.minutes)))
	last := 0
	for _, minute := range slices.Sorted(maps.Keys(s.minutes)) {
		b = binary.AppendUvarint(b, uint64(minute-last))
		last = minute
		b = appendBins(b, s.minutes[minute].all())
	}
	return b, nil
}

// UnmarshalBinary implements encoding.BinaryUnmarshaler. The step stays in its Room. The error is data that no Step has; then it has
// no requests.
func (s *Step) UnmarshalBinary(data []byte) error {
	s.Release()
	*s = Step{minutes: map[int]sparse{}, room: s.room, account: s.account}
	var t Tally
	d := decoder{rest: data}
	d.version()
	d.tally(&t)
	minutes := d.minutes()
	if err := d.end(); err != nil {
		return fmt.Errorf("decode a step of a canary: %w", err)
	}
	s.sides, s.slow = t.sides, t.slow
	s.tellApart(t.callers)
	for _, minute := range slices.Sorted(maps.Keys(minutes)) {
		s.addMinute(minute, minutes[minute].all())
	}
	return nil
}

var (
	errShort   = errors.New("it ends early")
	errNumber  = errors.New("a number is out of range")
	errOrder   = errors.New("the order is wrong")
	errLong    = errors.New("there is more behind its end")
	errVersion = errors.New("it is in the form of another version")
)

// decoder reads what append has written. After an error all that it reads is 0.
type decoder struct {
	rest []byte
	err  error
}

func (d *decoder) fail(err error) {
	if d.err == nil {
		d.err, d.rest = err, nil
	}
}

func (d *decoder) end() error {
	if len(d.rest) > 0 {
		d.fail(errLong)
	}
	return d.err
}

func (d *decoder) version() {
	switch {
	case len(d.rest) == 0:
		d.fail(errShort)
	case d.rest[0] != codecVersion:
		d.fail(errVersion)
	default:
		d.rest = d.rest[1:]
	}
}

// number reads a number up to most.
func (d *decoder) number(most uint64) uint64 {
	if d.err != nil {
		return 0
	}
	v, n := binary.Uvarint(d.rest)
	switch {
	case n == 0:
		d.fail(errShort)
	case n < 0 || v > most:
		d.fail(errNumber)
	default:
		d.rest = d.rest[n:]
		return v
	}
	return 0
}

// list reads a number of elements, of two bytes at least.
func (d *decoder) list(most int) int {
	n := int(d.number(uint64(most)))
	if n > len(d.rest)/2 {
		d.fail(errShort)
		return 0
	}
	return n
}

func (d *decoder) counts() (c Counts) {
	c.Requests = d.number(mostRequests)
	c.Bad = d.number(c.Requests)
	return c
}

// bins reads the bins of a sketch, and calls add for each in their order.
func (d *decoder) bins(add func(bin int, n uint32)) {
	bin := 0
	for i := range d.list(sketchBins) {
		from := d.number(sketchBins - 1)
		if i > 0 && from == 0 {
			d.fail(errOrder)
		}
		bin += int(from)
		n := d.number(math.MaxUint32)
		if bin >= sketchBins || n == 0 {
			d.fail(errNumber)
		}
		if d.err != nil {
			return
		}
		add(bin, uint32(n))
	}
}

func (d *decoder) tally(t *Tally) {
	for side := range t.sides {
		t.sides[side] = d.counts()
		d.bins(t.slow[side].AddBin)
	}
	n := d.list(maxCallers)
	if n > 0 {
		t.callers = make(map[uint64]Counts, n)
	}
	caller := uint64(0)
	var sum Counts
	for i := range n {
		from := d.number(math.MaxUint64 - caller)
		if i > 0 && from == 0 {
			d.fail(errOrder)
		}
		caller += from
		c := d.counts()
		sum.add(c)
		if sum.Requests > t.sides[Next].Requests || sum.Bad > t.sides[Next].Bad {
			d.fail(errNumber)
		}
		if d.err != nil {
			return
		}
		t.callers[caller] = c
	}
}

func (d *decoder) minutes() map[int]sparse {
	n := d.list(maxMinutes)
	minutes := make(map[int]sparse, n)
	minute := uint64(0)
	for i := range n {
		from := d.number(uint64(math.MaxInt/time.Minute) - minute)
		if i > 0 && from == 0 {
			d.fail(errOrder)
		}
		minute += from
		var s sparse
		d.bins(func(bin int, n uint32) { s = append(s, sparseBin{uint16(bin), n}) })
		if d.err != nil {
			return nil
		}
		minutes[int(minute)] = s
	}
	return minutes
}

// EncodeCallers returns callers in the form in which DecodeCallers reads them, sorted. It sorts the slice.
func EncodeCallers(callers []uint64) []byte {
	slices.Sort(callers)
	callers = slices.Compact(callers)
	b := make([]byte, 1, 1+10*len(callers))
	b[0] = codecVersion
	last := uint64(0)
	for _, c := range callers {
		b = binary.AppendUvarint(b, c-last)
		last = c
	}
	return b
}

// DecodeCallers returns the callers of EncodeCallers, in order. The error is data that it does not return.
func DecodeCallers(data []byte) (callers []uint64, err error) {
	d := decoder{rest: data}
	d.version()
	last := uint64(0)
	for len(d.rest) > 0 && len(callers) < MaxLeftOut {
		from := d.number(math.MaxUint64 - last)
		if len(callers) > 0 && from == 0 {
			d.fail(errOrder)
		}
		last += from
		callers = append(callers, last)
	}
	if err := d.end(); err != nil {
		return nil, fmt.Errorf("decode callers that a canary leaves out: %w", err)
	}
	return callers, nil
}
