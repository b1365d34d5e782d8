package consume

import (
	"errors"
	"strconv"
	"strings"

	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/ident"
)

var errReceipt = errors.New("consume: not a receipt")

// Receipt names a delivery, and the session that received it.
type Receipt struct {
	api.Receipt
	Session uint64
}

// maxReceipt bounds the text of a receipt, in bytes.
const maxReceipt = 16 + 1 + 16 + 1 + 16 + 1 + 16

// String returns the text for clients: message id, number of the delivery, epoch and session, as hexadecimal numbers.
func (r Receipt) String() string {
	b := append(append(make([]byte, 0, maxReceipt), r.ID[:]...), '-')
	b = append(strconv.AppendUint(b, r.Number, 16), '-')
	b = append(strconv.AppendUint(b, uint64(r.Epoch), 16), '-')
	return string(strconv.AppendUint(b, r.Session, 16))
}

// ParseReceipt reads the text of a receipt. It does not check that there is such a delivery.
func ParseReceipt(text string) (r Receipt, err error) {
	parts := strings.Split(text, "-")
	if len(text) > maxReceipt || len(parts) != 4 || len(parts[0]) != len(r.ID) {
		return r, errReceipt
	}
	copy(r.ID[:], parts[0])
	var numbers [3]uint64
	for i := range numbers {
		if numbers[i], err = strconv.ParseUint(parts[i+1], 16, 64); err != nil {
			return r, errReceipt
		}
	}
	r.Number, r.Epoch, r.Session = numbers[0], ident.Epoch(numbers[1]), numbers[2]
	if r.String() != text {
		return r, errReceipt // a receipt has one text
	}
	return r, nil
}
