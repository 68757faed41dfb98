package rows

// Budget is how much one transaction may still remove. Some rows are large: a revision holds a
// document of up to 16 MiB. Such rows have a weight, and one transaction removes only its limit
// divided by the weight.
type Budget struct{ left int }

// newBudget returns a budget of so many rows with the weight 1.
func newBudget(limit int) *Budget { return &Budget{max(limit, 0)} }

// Spent reports whether nothing more may be removed.
func (b *Budget) Spent() bool { return b.left <= 0 }

// Most returns how many rows of a weight may still be removed, at least one.
func (b *Budget) Most(weight int) int { return max(1, b.left/weight) }

// Removed counts rows of a weight. If there were as many as requested, more may follow, so rows
// that must be removed after them have to wait.
func (b *Budget) Removed(rows, weight int) {
	if rows >= b.Most(weight) {
		b.left = 0
		return
	}
	b.left -= rows * weight
}
