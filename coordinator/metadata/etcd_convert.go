package metadata

import (
	"errors"
	"fmt"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

func entryOf(kv *mvccpb.KeyValue) Entry {
	return Entry{
		Key: string(kv.Key), Value: kv.Value,
		Create: kv.CreateRevision, Mod: kv.ModRevision, Lease: kv.Lease,
	}
}

func conditions(cmp []Compare) []clientv3.Cmp {
	out := make([]clientv3.Cmp, 0, len(cmp))
	for _, c := range cmp {
		if c.Create != -1 {
			out = append(out, clientv3.Compare(clientv3.CreateRevision(c.Key), "=", c.Create))
		}
		if c.Mod != -1 {
			out = append(out, clientv3.Compare(clientv3.ModRevision(c.Key), "=", c.Mod))
		}
	}
	return out
}

func operations(puts []Put) []clientv3.Op {
	out := make([]clientv3.Op, len(puts))
	for i, p := range puts {
		switch {
		case p.Delete:
			out[i] = clientv3.OpDelete(p.Key)
		case p.Lease != 0:
			out[i] = clientv3.OpPut(p.Key, string(p.Value), clientv3.WithLease(clientv3.LeaseID(p.Lease)))
		default:
			out[i] = clientv3.OpPut(p.Key, string(p.Value))
		}
	}
	return out
}

// readError maps the failure of a request that changes nothing.
func readError(err error) error { return fmt.Errorf("%w: %w", ErrUnavailable, err) }

// writeError maps the failure of a request that changes something. It is ErrUnknown without proof that the request was refused
// before it was proposed: after a timeout, a lost connection or a change of etcd's leader, a proposal may be applied later.
func writeError(err error) error {
	switch {
	case errors.Is(err, rpctypes.ErrLeaseNotFound):
		return fmt.Errorf("%w: %w", ErrNoLease, err)
	case errors.Is(err, rpctypes.ErrTooManyOps), errors.Is(err, rpctypes.ErrDuplicateKey),
		errors.Is(err, rpctypes.ErrEmptyKey), errors.Is(err, rpctypes.ErrRequestTooLarge):
		return fmt.Errorf("%w: %w", ErrInvalid, err)
	case errors.Is(err, rpctypes.ErrNoSpace), errors.Is(err, rpctypes.ErrTooManyRequests):
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	switch codeOf(err) {
	case codes.PermissionDenied, codes.Unauthenticated, codes.InvalidArgument:
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	return fmt.Errorf("%w: %w", ErrUnknown, err)
}

// codeOf finds the gRPC code in both kinds of the client's errors.
func codeOf(err error) codes.Code {
	var typed rpctypes.EtcdError
	if errors.As(err, &typed) {
		return typed.Code()
	}
	return status.Code(err)
}
