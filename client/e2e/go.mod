module github.com/lockstepmq/lockstep/client/e2e

go 1.26.0

replace (
	github.com/lockstepmq/lockstep => ../..
	github.com/lockstepmq/lockstep/client => ..
)

require (
	github.com/lockstepmq/lockstep v0.0.0
	github.com/lockstepmq/lockstep/client v0.0.0
	github.com/nsqio/go-nsq v1.1.0
	github.com/stretchr/testify v1.12.1
	go.uber.org/goleak v1.3.0
)

require (
	github.com/gofrs/flock v0.13.1 // indirect
	github.com/golang/snappy v0.0.4 // indirect
	github.com/klauspost/compress v1.20.3 // indirect
	go.yaml.in/yaml/v3 v3.0.5 // indirect
	golang.org/x/sys v0.49.0 // indirect
	golang.org/x/time v0.15.0 // indirect
)
