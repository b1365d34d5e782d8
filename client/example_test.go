package client

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"
)

// brokers lists the addresses of the examples' brokers, with what ends them.
func brokers() (addresses []string, end func()) {
	f := startFake(sockets)
	return []string{f.addr()}, f.stop
}

// Publish a message, and receive it.
func Example() {
	addresses, end := brokers() // such as 127.0.0.1:4150, 127.0.0.1:4250
	defer end()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	c, err := Open(ctx, addresses, Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close(ctx)
	p := c.Producer(ProducerOptions{})
	if err := p.Publish(ctx, "orders", Message{Body: []byte("one"), Key: "customer-7", Headers: Headers{"kind": "new"}}); err != nil {
		log.Fatal(err)
	}
	receiving, stop := context.WithCancel(ctx)
	err = c.Consume(receiving, "orders", "billing", ConsumeOptions{}, func(_ context.Context, d *Delivery) error {
		fmt.Println(string(d.Body), d.Key, d.Headers["kind"], d.Attempts)
		stop()
		return nil
	})
	fmt.Println(err)
	// Output:
	// one customer-7 new 1
	// <nil>
}

// Send many messages without waiting for each, and judge the errors.
func ExampleProducer_Send() {
	addresses, end := brokers()
	defer end()
	ctx := context.Background()
	c, err := Open(ctx, addresses, Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close(ctx)
	p := c.Producer(ProducerOptions{MaxInFlight: 256, Linger: 2 * time.Millisecond})
	var futures []*Future
	for i := range 1000 {
		futures = append(futures, p.Send(ctx, "orders", Message{Body: fmt.Append(nil, i)}))
	}
	stored := 0
	for _, f := range futures {
		switch err := f.Err(); {
		case err == nil:
			stored++
		case errors.Is(err, ErrInDoubt):
			log.Print("may be stored: ", err)
		default: // ErrNotStored
			log.Print("is not stored: ", err)
		}
	}
	fmt.Println(stored, "stored")
	// Output: 1000 stored
}

// A message whose processing fails comes again after the delay that the handler chooses.
func ExampleRetryAfter() {
	addresses, end := brokers()
	defer end()
	ctx, stop := context.WithCancel(context.Background())
	c, err := Open(ctx, addresses, Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close(context.Background())
	if err := c.Producer(ProducerOptions{}).Publish(ctx, "orders", Message{Body: []byte("one")}); err != nil {
		log.Fatal(err)
	}
	_ = c.Consume(ctx, "orders", "billing", ConsumeOptions{}, func(_ context.Context, d *Delivery) error {
		fmt.Println("attempt", d.Attempts)
		if d.Attempts < 3 {
			return RetryAfter(errors.New("the bank does not answer"), time.Duration(d.Attempts)*time.Minute)
		}
		stop()
		return nil
	}) // nil: the context has ended, and all outcomes were sent
	// Output:
	// attempt 1
	// attempt 2
	// attempt 3
}
