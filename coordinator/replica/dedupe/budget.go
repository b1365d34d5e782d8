package dedupe

import "sync/atomic"

// Budget counts the identities of all windows of one broker, so that they are bounded together. Any goroutine may use
// it. A nil one bounds nothing.
type Budget struct {
	most int64
	used atomic.Int64
}

// budgetSlack: a broker keeps so many times its budget before it drops identities that are in their window. The leaders
// refuse more than the budget, but those of the partitions that it follows are other brokers, whose own budgets may
// have room.
const budgetSlack = 2

// NewBudget makes a budget of this many identities.
func NewBudget(most int) *Budget { return &Budget{most: int64(most)} }

func (b *Budget) add(n int) {
	if b != nil {
		b.used.Add(int64(n))
	}
}

// full reports whether so many further identities are more than the budget.
func (b *Budget) full(fresh int) bool { return b != nil && b.used.Load()+int64(fresh) > b.most }

// exceeded reports whether identities must be dropped.
func (b *Budget) exceeded() bool { return b != nil && b.used.Load() > budgetSlack*b.most }
