package cost

import "bytes"

// slots are what the paths of a program have led to. Of an object that has a member twice the last one counts, so what an
// event has is pending until it ends.
type slots struct {
	numbers []numberSlot
	texts   []textSlot
	touched []int32  // the slots with something pending; texts are after the numbers
	matches []uint64 // of each node: when its name was last read
	clock   uint64   // counts names that were read
	unit    uint64   // counts values, lines, elements or events
}

// numberSlot is the value of the path of a field.
type numberSlot struct {
	number, pending       number
	reason, pendingReason Reason
	unit                  uint64 // the last unit that has it; 0 for none
	clock                 uint64 // of pending; 0 if nothing is
	node                  int32
}

// textSlot is the value of a path of by.
type textSlot struct {
	unit, clock     uint64
	node            int32
	length, pending int16 // of the texts; noText if there is something else
	content, next   [MaxPriceKey]byte
}

const noText = -1

func (s *slots) init(p *Program) {
	s.numbers, s.texts = make([]numberSlot, p.numbers), make([]textSlot, p.texts)
	s.touched, s.matches = make([]int32, 0, p.numbers+p.texts), make([]uint64, len(p.nodes))
	for i := range p.nodes {
		if n := p.nodes[i].number; n != noSlot {
			s.numbers[n].node = int32(i)
		}
		if n := p.nodes[i].text; n != noSlot {
			s.texts[n].node = int32(i)
		}
	}
}

// clear forgets everything.
func (s *slots) clear() {
	s.discard()
	for i := range s.numbers {
		s.numbers[i].unit = 0
	}
	for i := range s.texts {
		s.texts[i].unit = 0
	}
	s.unit = 0
}

// match says that the name of a node was read: what it led to before in this unit, it leads to no more.
func (s *slots) match(node int32) {
	s.clock++
	s.matches[node] = s.clock
}

func (s *slots) setNumber(slot int32, n number, reason Reason) {
	to := &s.numbers[slot]
	if to.clock == 0 {
		s.touched = append(s.touched, slot)
	}
	to.pending, to.pendingReason, to.clock = n, reason, s.clock
}

// setString sets a text, or none if it cannot be a price.
func (s *slots) setString(slot int32, content []byte, complete bool) {
	to := &s.texts[slot]
	if to.clock == 0 {
		s.touched = append(s.touched, int32(len(s.numbers))+slot)
	}
	to.clock, to.pending = s.clock, noText
	if complete && len(content) <= MaxPriceKey {
		to.pending = int16(copy(to.next[:], content))
	}
}

// setText sets the value of a node: the text of a string or number.
func (s *slots) setText(p *Program, node int32, content []byte, complete bool) {
	n := &p.nodes[node]
	if n.number != noSlot {
		if complete {
			got, reason := parseNumber(content)
			s.setNumber(n.number, got, reason)
		} else {
			s.setNumber(n.number, number{}, TooLong)
		}
	}
	if n.text != noSlot {
		s.setString(n.text, content, complete)
	}
}

// setLiteral sets the value of a node: true or false.
func (s *slots) setLiteral(p *Program, node int32, content []byte) {
	n := &p.nodes[node]
	if n.number != noSlot {
		s.setNumber(n.number, number{}, NotANumber)
	}
	if n.text != noSlot {
		s.setString(n.text, content, true)
	}
}

// setOther sets the value of a node: an object or an array.
func (s *slots) setOther(p *Program, node int32) {
	n := &p.nodes[node]
	if n.number != noSlot {
		s.setNumber(n.number, number{}, NotANumber)
	}
	if n.text != noSlot {
		s.setString(n.text, nil, false)
	}
}

// commit ends a unit: what is pending counts. It reports whether that has changed a text.
func (s *slots) commit(p *Program) (changed bool) {
	if len(s.touched) == 0 {
		return false
	}
	s.unit++
	for _, i := range s.touched {
		if i < int32(len(s.numbers)) {
			if n := &s.numbers[i]; s.isLast(p, n.node, n.clock) {
				n.number, n.reason, n.unit = n.pending, n.pendingReason, s.unit
			}
		} else if t := &s.texts[i-int32(len(s.numbers))]; s.isLast(p, t.node, t.clock) {
			changed = changed || !t.isNext()
			t.length, t.content, t.unit = t.pending, t.next, s.unit
		}
	}
	s.discard()
	return changed
}

// isLast reports whether no name on the path to the node was read again after the clock.
func (s *slots) isLast(p *Program, node int32, clock uint64) bool {
	for ; node != theRoot; node = p.nodes[node].parent {
		if s.matches[node] > clock {
			return false
		}
	}
	return true
}

// discard forgets what is pending.
func (s *slots) discard() {
	for _, i := range s.touched {
		if i < int32(len(s.numbers)) {
			s.numbers[i].clock = 0
		} else {
			s.texts[i-int32(len(s.numbers))].clock = 0
		}
	}
	s.touched = s.touched[:0]
}

// isNext reports whether t has the pending text already.
func (t *textSlot) isNext() bool {
	return t.unit > 0 && t.length == t.pending && (t.length == noText || bytes.Equal(t.content[:t.length], t.next[:t.length]))
}

// isFollowing reports whether b, which follows the name in quotes, has the text that the slot has already.
func (t *textSlot) isFollowing(b []byte) bool {
	if t.unit == 0 || t.length == noText {
		return false
	}
	content := t.content[:t.length]
	b, found := cutAfter(bytes.TrimLeft(b, " "), ':')
	if !found {
		return false
	}
	if b, found = cutAfter(bytes.TrimLeft(b, " "), '"'); !found || len(b) <= len(content) {
		return false
	}
	return b[len(content)] == '"' && bytes.Equal(b[:len(content)], content) && plain(content) == len(content) // no escapes
}

// cutAfter returns b without the byte c that it begins with.
func cutAfter(b []byte, c byte) ([]byte, bool) {
	if len(b) == 0 || b[0] != c {
		return b, false
	}
	return b[1:], true
}
