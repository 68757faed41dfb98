package rows

import "slices"

// RawTexts are texts with any bytes, which PostgreSQL keeps as byte strings.
type RawTexts []string

// Bytes returns the texts as byte strings.
func (r RawTexts) Bytes() [][]byte {
	list := make([][]byte, len(r))
	for i, text := range r {
		list[i] = []byte(text)
	}
	return list
}

// CountRows returns the number of rows of the arguments of Statements.QueueEach.
func CountRows(args []any) int {
	for _, a := range args {
		switch a := a.(type) {
		case []string:
			return len(a)
		case []int64:
			return len(a)
		case [][]byte:
			return len(a)
		case RawTexts:
			return len(a)
		}
	}
	return 0
}

// EachRow calls f with the arguments of each row, in which columns are values. f must not keep them.
func EachRow(args []any, f func(args []any) error) error {
	own := slices.Clone(args)
	for i := range CountRows(args) {
		for n, a := range args {
			switch a := a.(type) {
			case []string:
				own[n] = a[i]
			case []int64:
				own[n] = a[i]
			case [][]byte:
				own[n] = a[i]
			case RawTexts:
				own[n] = a[i]
			}
		}
		if err := f(own); err != nil {
			return err
		}
	}
	return nil
}
