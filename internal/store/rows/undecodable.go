package rows

// Undecodable is the error of a row that the engine has read and this package cannot decode.
type Undecodable struct{ Err error }

func (e *Undecodable) Error() string { return e.Err.Error() }
func (e *Undecodable) Unwrap() error { return e.Err }

// Decoded marks an error of decoding a row.
func Decoded(err error) error {
	if err == nil {
		return nil
	}
	return &Undecodable{err}
}
