// Package memory counts the bytes of a device by what they are used for: [Parameters], [Gradients], step memory ([Activations]) and so on,
// now and at the peak. Each device has a [Counter]; print it:
//
//	fmt.Println(dev.Memory())
//
// Package tensor counts the memory of its tensors there. Who gives a tensor memory of its own says what it is used for: tensor.NewFor,
// tensor.Raw.Count. An [Account] counts one piece of memory, until it is given back. Package plan predicts the numbers.
package memory
