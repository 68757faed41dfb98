package audit

// AddOld adds a record with a diff as an earlier version stored it: of any size.
func (t *Table) AddOld(r *Record, diff string) error {
	if err := t.Add(r); err != nil {
		return err
	}
	t.extras[t.rows[len(t.rows)-1].extra-1].diff = diff
	return nil
}
