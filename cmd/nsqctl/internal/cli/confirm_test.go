package cli

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Only y and yes mean yes.
func TestAPlanIsConfirmed(t *testing.T) {
	for answer, ok := range map[string]bool{"y\n": true, "YES\n": true, "\n": false, "n\n": false, "": false} {
		err := Confirm(new(strings.Builder), strings.NewReader(answer))
		require.Equal(t, ok, err == nil, "%q", answer)
	}
}
