package closing

// SetBounds bounds what one closing takes.
func (c *Closer) SetBounds(parts, bytes int) { c.mostParts, c.mostBytes = parts, bytes }
