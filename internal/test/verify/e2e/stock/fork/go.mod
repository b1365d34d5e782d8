module github.com/lockstepmq/lockstep/internal/test/verify/e2e/stock/fork

go 1.26.0

require (
	github.com/spaolacci/murmur3 v1.1.0
	github.com/youzan/go-nsq v1.7.12-HA.0.20220221064313-fc140f8484b7
)

require (
	github.com/golang/snappy v0.0.1 // indirect
	github.com/pierrec/lz4 v2.4.1+incompatible // indirect
)
