/** How the sample speaks HTTP: prefix, versions, validation, OpenAPI. The same for the process and for its tests. */
import { ValidationPipe, VersioningType, type INestApplication } from '@nestjs/common';
import { DocumentBuilder, SwaggerModule } from '@nestjs/swagger';

export function setUpHttp(app: INestApplication): void {
  app.setGlobalPrefix('api', { exclude: ['metrics', 'health'] });
  app.enableVersioning({ type: VersioningType.URI });
  app.useGlobalPipes(new ValidationPipe({ whitelist: true, forbidNonWhitelisted: true, transform: true }));
  const description = new DocumentBuilder().setTitle('Delivery orders').setVersion('1').build();
  SwaggerModule.setup('api/docs', app, () => SwaggerModule.createDocument(app, description));
}
