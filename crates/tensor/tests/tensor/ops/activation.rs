use crate::suite::Case;
use myxtts_tensor::DType;
use myxtts_tensor::ops::activation::Function;

pub fn cases() -> Vec<Case> {
    let functions = [
        ("gelu_tanh", Function::GeluTanh),
        ("gelu_erf", Function::GeluErf),
        ("relu", Function::Relu),
        ("leaky_relu", Function::LeakyRelu(0.1)),
        ("tanh", Function::Tanh),
        ("sigmoid", Function::Sigmoid),
        ("silu", Function::Silu),
        ("log", Function::Log),
        ("exp", Function::Exp),
        ("sqrt", Function::Sqrt),
        ("clamp_min", Function::ClampMin(0.0)),
        ("square", Function::Square),
        ("abs", Function::Abs),
    ];
    let mut cases: Vec<Case> = functions
        .into_iter()
        .map(|(name, function)| {
            let case = Case::new(name, move |b| {
                let shape = [b.size(1, 5), b.size(1, 40)];
                // Away from zero, where the derivative of some functions jumps.
                let n = shape[0] * shape[1];
                let away = |x: f32| match function {
                    // Not defined for negative inputs.
                    Function::Log | Function::Sqrt => x.abs() + 0.2,
                    _ => x + 0.05f32.copysign(x),
                };
                let data = (0..n).map(|_| away(b.random.normal())).collect();
                let x = b.variable_of(shape, data);
                vec![b.tape.activation(x, function)]
            });
            case.step(5e-3)
        })
        .collect();
    cases.push(Case::new("cast", |b| {
        let n = b.size(1, 300);
        let x = b.variable([n]);
        // Cast there and back, and used twice: gradients are accumulated.
        let y = b.tape.cast(x, DType::F32);
        vec![y, b.tape.activation(x, Function::Tanh), b.tape.reshape(x, [1, n])]
    }));
    cases
}
