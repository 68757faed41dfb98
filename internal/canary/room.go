package canary

// What callers and minutes of a step take in memory, about.
const (
	callerBytes = 64
	minuteBytes = 640
)

// Room bounds the memory of several steps by what they tell apart. An account may take more while it has less than roomShare times as
// much as all accounts leave free, so that no account takes all of it. It is not safe for concurrent use.
type Room struct {
	most, all int
	of        map[string]int // by account
}

const roomShare = 3

// NewRoom returns a room of a number of bytes.
func NewRoom(bytes int) *Room { return &Room{most: bytes, of: map[string]int{}} }

// Taken returns how many bytes are taken.
func (r *Room) Taken() int { return r.all }

func (r *Room) take(account string, n int) bool {
	if r == nil {
		return true
	}
	if free := r.most - r.all; free < n || r.of[account] >= roomShare*free {
		return false
	}
	r.all += n
	r.of[account] += n
	return true
}

func (r *Room) give(account string, n int) {
	if r == nil || n == 0 {
		return
	}
	r.all -= n
	if r.of[account] -= n; r.of[account] == 0 {
		delete(r.of, account)
	}
}
