package writer

import (
	"net/netip"

	"github.com/keygate/keygate/internal/audit"
	"github.com/keygate/keygate/internal/clientip"
)

const (
	// refusalsEach is how many refused authentications of an address within a minute have records of their own.
	// Those beyond are counted in one.
	refusalsEach = 60
	// maxRefused is the number of addresses, of all accounts together, whose refusals are counted at the same time. What
	// others are refused has records of its own, however often.
	maxRefused = 65_536
	// keptRefused is the number of addresses for which memory is kept for the next minute.
	keptRefused = 1024
)

// refusals counts the refused authentications of each address in the present minute.
type refusals struct {
	minute int64
	of     map[refused]*refusal
}

// refused is whose refusals are counted together: those of an address at an account.
type refused struct {
	account [16]byte
	client  clientip.Group
}

// refusal is how often an address was refused, and the record that counts what is beyond refusalsEach. There is a new one
// after each collection of records.
type refusal struct {
	times      int
	row        int    // number of the record in its account's table
	collection uint64 // for which that table is filled
}

// count counts an authentication with the outcome at a time in microseconds. It returns nil if that is to have a
// record of its own, because it was not refused with 401, or because its address was not refused often in that minute.
// Times of the minute before, which come late, have records of their own.
func (r *refusals) count(account [16]byte, o audit.Outcome, client netip.Addr, at int64) *refusal {
	if o != audit.KeyInvalid && o != audit.KeyExpired {
		return nil
	}
	if m := audit.Minute(at); m != r.minute {
		if m == r.minute-1 {
			return nil
		}
		if r.minute = m; len(r.of) > keptRefused {
			r.of = nil
		}
		clear(r.of)
	}
	k := refused{account, clientip.GroupOf(client)}
	one := r.of[k]
	if one == nil {
		if len(r.of) == maxRefused {
			return nil
		}
		if r.of == nil {
			r.of = map[refused]*refusal{}
		}
		one = &refusal{}
		r.of[k] = one
	}
	if one.times < refusalsEach {
		one.times++
		return nil
	}
	return one
}

// clientOf returns the address of an access record; an address that is not valid if it has none.
func clientOf(client *[16]byte) netip.Addr {
	if *client == [16]byte{} {
		return netip.Addr{}
	}
	return netip.AddrFrom16(*client)
}
