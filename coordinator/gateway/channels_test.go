package gateway

import (
	"context"

	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/nsqd"
)

func (b *broker) unlead(ident.Partition)                                            {}
func (b *broker) serve(ident.Partition, ident.Epoch)                                {}
func (b *broker) advance(ident.Partition)                                           {}
func (b *broker) Queue(ident.Partition) (*nsqd.Partition, bool)                     { return nil, false }
func (b *broker) CreateChannel(context.Context, string, string, string, bool) error { return nil }
