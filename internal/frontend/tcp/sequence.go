package tcp

import (
	"errors"

	"github.com/lockstepmq/lockstep/nsqd/queue"
)

// A client may name itself with "producer_id" in IDENTIFY and number its messages with ##seq. Name and number then
// stand for an id (docs/adr/0014).

// name takes the producer_id of an IDENTIFY. A later IDENTIFY without one leaves it.
func (c *conn) name(id *identity) error {
	if id.ProducerID == "" {
		return nil
	}
	if !queue.ValidProducer(id.ProducerID) {
		return fatal(codeBadBody, "IDENTIFY producer_id must be 1 to %d bytes of UTF-8", queue.MaxProducerBytes)
	}
	c.producer = id.ProducerID
	return nil
}

// giveIdentity gives a numbered message the identity of its producer and number.
func (x *item) giveIdentity(verb, producer string) error {
	if !x.numbered {
		return nil
	}
	if producer == "" {
		return refusal(codeInvalidHeader, "%s %s requires a producer_id in IDENTIFY", verb, queue.HeaderSequence)
	}
	x.Identity = queue.IdentityOfSequence(producer, x.seq)
	return nil
}

// ending is an error in the middle of a body: the connection ends, because the next command cannot be found.
func ending(err error) error {
	if cmd := (*commandError)(nil); errors.As(err, &cmd) && cmd.open {
		return &commandError{text: cmd.text}
	}
	return err
}
