package engine

// Listed reports whether all partitions were listed and sorted since one came or went.
func (e *Engine) Listed() bool {
	e.partitions.RLock()
	defer e.partitions.RUnlock()
	return e.partitions.list != nil
}
