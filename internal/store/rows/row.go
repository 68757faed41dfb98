package rows

// Result is the result of a query as the driver of an engine has it.
type Result interface {
	// Scan copies the columns of the present row to what the pointers point to, as Scan of database/sql does.
	Scan(to ...any) error
}

// Row is the present row of a result. A connection uses it for one query after the other.
type Row struct {
	Result
	to []any // arguments for Result, so that Scan does not allocate for each row
}

// Scan implements Result.
func (r *Row) Scan(to ...any) error {
	r.to = append(r.to[:0], to...)
	return r.Result.Scan(r.to...)
}

// Release drops the references to the result and to the variables of the last Scan.
func (r *Row) Release() {
	r.Result = nil
	clear(r.to)
}
